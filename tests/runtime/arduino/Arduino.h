/* As much of Arduino as the exported example uses, with standard input and output as the serial port. */
#ifndef ARDUINO_H
#define ARDUINO_H

#include <stdio.h>
#include <stdlib.h>

struct SerialPort {
  void begin(unsigned long) {}
  int available() {
    int sign = getchar();
    if (sign == EOF) exit(0);
    return ungetc(sign, stdin) != EOF;
  }
  int read() { return getchar(); }
  void print(double number, int digits) { printf("%.*f", digits, number); }
  void print(char sign) { putchar(sign); }
  void println() { putchar('\n'); }
  void println(const char *text) { puts(text); }
};
extern SerialPort Serial;

void setup();
void loop();

#endif

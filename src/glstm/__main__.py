from glstm.cli.main import main

main()

/* Streams on this machine run any network, so everything in stream.h and head.h that is optional is compiled. */
#define GLSTM_RAW
#define GLSTM_POOL
#define GLSTM_HEAD
#define GLSTM_WITH_LEAKY_RELU
#define GLSTM_WITH_SIGMOID
#define GLSTM_WITH_TANH
#define GLSTM_WITH_SILU
#define GLSTM_WITH_GELU
#define GLSTM_WITH_GELU_TANH
#define GLSTM_WITH_SOFTMAX
#define GLSTM_WITH_LOG_SOFTMAX
#define GLSTM_WITH_LAYER_NORM

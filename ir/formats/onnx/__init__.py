"""ONNX, to look at: what the compiler's graphs hold, in a form that viewers of ONNX open."""

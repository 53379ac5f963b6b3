"""ONNX: forward models (reader/), the network in standard operators (standard/)."""

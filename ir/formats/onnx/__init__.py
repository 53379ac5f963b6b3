"""ONNX: graphs for viewers (writer), forward models (reader/), the network in standard operators (standard/)."""

"""From a forward graph to a training program, with MindSpore's own autodiff."""

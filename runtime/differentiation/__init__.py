"""From a forward graph, or a live Cell, to a training program, with MindSpore's own autodiff."""

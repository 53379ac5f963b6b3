"""The IR: programs and graphs, what can be told of them, how they are changed, stored and checked."""

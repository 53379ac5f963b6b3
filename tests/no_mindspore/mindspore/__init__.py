"""Stands in the place of MindSpore in the fast tests (``make unit``): who imports it fails, also in other processes."""

raise ImportError("a fast test must do without MindSpore; mark it with @pytest.mark.mindspore", name="mindspore")

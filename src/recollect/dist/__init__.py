"""Processes that compute one thing together: how they start, talk and end. What they compute is none of its business."""

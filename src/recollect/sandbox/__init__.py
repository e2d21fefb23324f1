"""A place for programs that a model wrote: no network, no files but its own, limits on everything, killed as a whole.

``inside`` is what runs behind the walls, with the standard library alone; the other modules are the host's side.
Nothing is imported here, so that the inside can be loaded without the host's side.
"""

"""Configuration files of VideoMultiAgents, whose keys are those of TRL's trainers. ``keys.py`` has every key."""

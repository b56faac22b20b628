"""Kills, races, broken disks and random histories, over all of the machinery."""

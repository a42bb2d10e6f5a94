"""Files at a location, and what a listing calls them."""

from tlm_ray import storage
from tlm_ray.storage.listing import base_of, name_below


def fill(root, *names):
    for name in names:
        storage.write_bytes(storage.join(root, *name.split("/")), name.encode())


def names(root, found):
    base = base_of(root)
    return [name_below(base, file.uri) for file in found]

"""The one door: a parcel is judged here and becomes rows. Own attempts, nodes, kits and stored runs all come through it."""

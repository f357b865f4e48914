"""Front ends: a folder for each kind of model, from what users have to a Relax module."""

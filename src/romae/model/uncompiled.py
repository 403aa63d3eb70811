"""Functions kept out of compiled graphs. Importing this loads the compiler, which takes seconds: import it late."""

from torch.compiler import disable

from romae.model import by_length as plain

by_length = disable(plain.by_length)

"""Figures and pages; they need the extra `plots`."""

from romae.extras import require_extra

require_extra("plots", "figures and pages need")

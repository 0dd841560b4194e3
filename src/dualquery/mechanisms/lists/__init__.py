"""Tables of codes: noisy cells read where asked, and weights over the cells that queries touch."""

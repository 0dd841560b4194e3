"""What leaves the house: releases, their certificates and reports, and their evaluation by the curator."""

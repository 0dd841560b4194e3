"""Questions one at a time: an analyst asks, a public hypothesis answers, and only surprises cost anything."""

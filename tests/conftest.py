# Comparisons with other systems' releases need those releases: make peers.
collect_ignore = ["peers"]

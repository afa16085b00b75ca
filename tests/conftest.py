# Comparisons with other systems' releases run by make peers, which installs those releases.
collect_ignore = ["peers"]

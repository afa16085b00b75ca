"""The same as the script: python -m counterweight_rl.cli."""

from counterweight_rl.cli import main

main()

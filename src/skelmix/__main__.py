"""`python -m skelmix` is the command `skelmix`."""

from skelmix.cli.main import main

if __name__ == "__main__":
    main()

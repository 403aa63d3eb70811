from romae.cli import main

main()

from romae.cli.main import main

main()

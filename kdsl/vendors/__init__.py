"""What kdsl knows of single vendors, each a plug-in that is loaded when it is used."""

"""What simulated hardware is: profiles, the files and the C stubs made of them."""

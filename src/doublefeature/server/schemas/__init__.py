"""What requests and answers look like; the API's description is made from these."""

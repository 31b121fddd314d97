"""The pages of the browser: forms and lists made on the server. They call the same rooms as /api/v1 and decide nothing."""

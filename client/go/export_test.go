package counterweight

// Writes counts the client's connections in the midst of a write.
func (c *Client) Writes() int { return len(c.connections.writing()) }

package counterweight

import (
	"log/slog"
	"strings"
)

// Version is that of this package; the server sees it in the user agent.
const Version = "0.1.0"

// compareVersions warns once, by the default logger of package slog, of a server with answers that
// this package may not understand in full.
func (c *Client) compareVersions(server string) {
	if server != "" && significant(server) != significant(Version) {
		c.warned.Do(func() {
			slog.Warn("counterweight: client and server are of different versions", "client", Version, "server", server)
		})
	}
}

// significant is a version up to its first number that is not 0.
func significant(version string) string {
	numbers := strings.Split(version, ".")
	for i, number := range numbers {
		if number != "0" {
			return strings.Join(numbers[:i+1], ".")
		}
	}
	return version
}

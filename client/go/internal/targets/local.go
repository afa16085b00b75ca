package targets

import (
	"net/netip"
	"slices"
	"strings"
)

// loopbackNames are those of hosts files, beside names below localhost.
var loopbackNames = []string{"localhost", "localhost.localdomain", "localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"}

// IsSocket reports whether the target is a Unix socket.
func (t Target) IsSocket() bool { return t.Scheme == "unix" || t.Scheme == "unix-abstract" }

// IsList reports whether the target is a list of addresses.
func (t Target) IsList() bool { return t.Scheme == "ipv4" || t.Scheme == "ipv6" }

// StaysHere reports whether the bytes never leave this machine, except through a proxy.
func (t Target) StaysHere() bool {
	if len(t.Addresses) == 0 {
		return t.IsSocket()
	}
	// A name server elsewhere may resolve localhost to any address.
	return t.Authority == "" && !slices.ContainsFunc(t.Addresses, func(a Address) bool { return !a.isLoopback() })
}

// MayStayHere reports whether an address may be of this machine; a proxy would use it as one of its
// own.
func (t Target) MayStayHere() bool {
	return t.IsSocket() || slices.ContainsFunc(t.Addresses, func(a Address) bool { return IsThisMachine(a.Host) })
}

func (a Address) isLoopback() bool {
	ip, err := netip.ParseAddr(a.Host)
	return a.Host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// IsThisMachine reports whether the host is a name or an address of loopback in any spelling, or
// the
// unspecified address, which connects to loopback.
func IsThisMachine(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified()
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.Contains(loopbackNames, name) || strings.HasSuffix(name, ".localhost")
}

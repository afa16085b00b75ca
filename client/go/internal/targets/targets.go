// Package targets reads the addresses of servers; rules 45 and 46 of client/README.md.
package targets

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const (
	// mostPathBytes are what a Unix socket's address has room for.
	mostPathBytes  = 107
	nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
)

// An Address is one server of a target.
type Address struct {
	// Host is a name or an IP address without brackets.
	Host string
	Port string
}

// A Target is an address that a client connects to.
type Target struct {
	// Text is the target as gRPC takes it: a path is encoded.
	Text string
	// Scheme is empty for HOST:PORT.
	Scheme string
	// Authority is the name server of "dns://AUTHORITY/HOST:PORT".
	Authority string
	// Addresses are those of a list, or one; none of a socket.
	Addresses []Address
}

// Parse reads a target. Its error continues a sentence that begins with the target; the Target then
// is of no use.
func Parse(text string) (Target, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "unix", "unix-abstract":
		path, authority := withoutAuthority(rest, "/")
		if authority != "" {
			return Target{}, fmt.Errorf("takes %q for another machine: a path begins with one or three slashes", authority)
		}
		return Target{Text: scheme + ":" + encoded(path), Scheme: scheme}, checkPath(scheme, path)
	case "dns", "passthrough":
		endpoint, authority := withoutAuthority(rest, "")
		endpoint = strings.TrimPrefix(endpoint, "/")
		if strings.HasPrefix(endpoint, "unix:") && scheme == "passthrough" {
			return Parse(endpoint)
		}
		address, err := parseAddress(endpoint)
		return Target{Text: text, Scheme: scheme, Authority: authority, Addresses: []Address{address}}, err
	case "ipv4", "ipv6":
		members, authority := withoutAuthority(rest, "")
		if authority != "" {
			return Target{}, fmt.Errorf("has %q before its addresses", authority)
		}
		list, err := parseList(scheme, strings.TrimPrefix(members, "/"))
		list.Text = text
		return list, err
	}
	if strings.Contains(text, "://") {
		return Target{}, fmt.Errorf("has the scheme %q, which is none of a server", scheme)
	}
	address, err := parseAddress(text)
	return Target{Text: text, Addresses: []Address{address}}, err
}

// withoutAuthority splits "//AUTHORITY/REST"; keep is put before the rest.
func withoutAuthority(text, keep string) (rest, authority string) {
	if after, found := strings.CutPrefix(text, "//"); found {
		authority, rest, _ = strings.Cut(after, "/")
		return keep + rest, authority
	}
	return text, ""
}

// encoded is a path as gRPC reads it, which decodes targets as URLs do, except relative paths.
func encoded(path string) string {
	if !strings.HasPrefix(path, "/") {
		return path
	}
	return (&url.URL{Path: path}).EscapedPath()
}

func checkPath(scheme, path string) error {
	switch {
	case strings.ContainsAny(path, "?#"):
		return fmt.Errorf("has a query or a fragment, which a socket has not")
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("has a control character in its path")
	case path == "" || (scheme == "unix" && strings.HasSuffix(path, "/")):
		return fmt.Errorf("has no path of a socket")
	case len(path) > mostPathBytes:
		return fmt.Errorf("has a path of %d bytes; a socket's has at most %d", len(path), mostPathBytes)
	}
	return nil
}

func parseList(scheme, text string) (Target, error) {
	list := Target{Scheme: scheme}
	for _, member := range strings.Split(text, ",") {
		address, err := parseAddress(member)
		if err != nil {
			return list, fmt.Errorf("has the address %q, which %w", member, err)
		}
		ip, err := netip.ParseAddr(address.Host)
		if err != nil || ip.Is4() != (scheme == "ipv4") {
			return list, fmt.Errorf("has the address %q, which is no %s address", member, scheme)
		}
		list.Addresses = append(list.Addresses, address)
	}
	return list, nil
}

func parseAddress(text string) (Address, error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 || strings.HasSuffix(text, "]") {
		return Address{}, fmt.Errorf("has no port: a server listens on 50051 by default")
	}
	host, port := text[:colon], text[colon+1:]
	number, err := strconv.ParseUint(port, 10, 64)
	switch {
	case port == "":
		return Address{}, fmt.Errorf("has no port: a server listens on 50051 by default")
	case strings.Trim(port, "0123456789") != "":
		return Address{}, fmt.Errorf("has the port %q, which is no number", port)
	case err != nil || number < 1 || number > 65535:
		return Address{}, fmt.Errorf("has the port %s, which is not from 1 to 65535", port)
	}
	if inner, found := strings.CutPrefix(host, "["); found {
		inner, found = strings.CutSuffix(inner, "]")
		if ip, err := netip.ParseAddr(inner); !found || err != nil || !ip.Is6() {
			return Address{}, fmt.Errorf("has %q for an IPv6 address", host)
		}
		return Address{inner, port}, nil
	}
	return Address{host, port}, checkHost(host)
}

func checkHost(host string) error {
	switch {
	case host == "":
		return fmt.Errorf("has no host: write localhost for this machine")
	case strings.ContainsFunc(host, func(r rune) bool { return !strings.ContainsRune(nameCharacters+":", r) }):
		return fmt.Errorf("has the host %q: a name has letters, digits, '-', '.' and '_'", host)
	case strings.Contains(host, ":"):
		return fmt.Errorf("has %q for a host: an IPv6 address needs brackets", host)
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("has the host %q: between dots are 1 to 63 characters", host)
		}
	}
	if ip, err := netip.ParseAddr(host); endsInNumber(labels[len(labels)-1]) && (err != nil || !ip.Is4()) {
		return fmt.Errorf("has the host %q: an IPv4 address has four numbers from 0 to 255", host)
	}
	return nil
}

// endsInNumber distinguishes an address from a name: no top-level domain is a number. Systems
// differ in the addresses that they accept.
func endsInNumber(last string) bool {
	digits := "0123456789"
	if hexadecimal, found := strings.CutPrefix(strings.ToLower(last), "0x"); found {
		last, digits = hexadecimal, "0123456789abcdef"
	}
	return strings.Trim(last, digits) == ""
}

package counterweight

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// defaultPort is gRPC's for an address without one.
const defaultPort = "443"

// takeTurns are the options for a target that may stand for several servers.
func takeTurns(target string) ([]grpc.DialOption, error) {
	scheme, addresses, _ := strings.Cut(target, ":")
	if scheme != "dns" && scheme != "ipv4" && scheme != "ipv6" {
		return nil, nil
	}
	turns := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)
	if scheme == "dns" {
		return []grpc.DialOption{turns}, nil
	}
	list, err := parseAddresses(scheme, addresses)
	if err != nil {
		return nil, err
	}
	return []grpc.DialOption{turns, grpc.WithResolvers(list)}, nil
}

// An addressList resolves "ipv4:host:port,host:port" and "ipv6:[host]:port", which gRPC
// defines and grpc-go lacks.
type addressList struct {
	scheme    string
	addresses []resolver.Address
}

func parseAddresses(scheme, text string) (*addressList, error) {
	list := &addressList{scheme: scheme}
	for _, address := range strings.Split(text, ",") {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			host, port = strings.Trim(address, "[]"), defaultPort
		}
		ip, err := netip.ParseAddr(host)
		if err != nil || ip.Is4() != (scheme == "ipv4") {
			return nil, fmt.Errorf("counterweight: the target %s:%s: %q is no %s address", scheme, text, address, scheme)
		}
		list.addresses = append(list.addresses, resolver.Address{Addr: net.JoinHostPort(host, port), ServerName: host})
	}
	return list, nil
}

// Scheme implements resolver.Builder.
func (l *addressList) Scheme() string { return l.scheme }

// Build implements resolver.Builder.
func (l *addressList) Build(
	_ resolver.Target, connection resolver.ClientConn, _ resolver.BuildOptions,
) (resolver.Resolver, error) {
	return l, connection.UpdateState(resolver.State{Addresses: l.addresses})
}

// ResolveNow implements resolver.Resolver; the addresses do not change.
func (l *addressList) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (l *addressList) Close() {}

package counterweight

import (
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/counterweight/counterweight/client/go/internal/targets"
)

// takeTurns are the options for a target that may name several servers.
func takeTurns(target targets.Target) []grpc.DialOption {
	if target.Scheme != "dns" && !target.IsList() {
		return nil
	}
	options := []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)}
	if target.IsList() {
		options = append(options, grpc.WithResolvers(newAddressList(target)))
	}
	return options
}

// malformed is the error of a target that no call could reach; nil if there is nothing wrong, or a
// resolver of the caller's knows the target.
func malformed(target string, wrong error, conn *grpc.ClientConn, dial []grpc.DialOption) error {
	scheme, _, _ := strings.Cut(target, ":")
	switch scheme {
	case "dns", "ipv4", "ipv6", "unix", "unix-abstract":
	case "passthrough":
		if len(dial) > 0 { // a dialer of the caller's gives it a meaning
			return nil
		}
	default:
		if strings.HasPrefix(conn.CanonicalTarget(), scheme+":") {
			return nil
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("counterweight: the target %q %w; targets are HOST:PORT, dns:///HOST:PORT, unix:/PATH, and lists ipv4:IP:PORT,IP:PORT", target, wrong)
}

// An addressList resolves "ipv4:host:port,host:port" and "ipv6:[host]:port", which gRPC
// defines and grpc-go lacks.
type addressList struct {
	scheme    string
	addresses []resolver.Address
}

func newAddressList(target targets.Target) *addressList {
	list := &addressList{scheme: target.Scheme}
	for _, address := range target.Addresses {
		list.addresses = append(list.addresses, resolver.Address{
			Addr: net.JoinHostPort(address.Host, address.Port), ServerName: address.Host,
		})
	}
	return list
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

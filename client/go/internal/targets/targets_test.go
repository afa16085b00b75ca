package targets_test

import (
	"strings"
	"testing"

	"github.com/counterweight/counterweight/client/go/internal/targets"
)

func TestTargetsThatAreRight(t *testing.T) {
	for _, text := range []string{
		"localhost:50051", "a.example:1", "a_b-c.example.:65535", "10.0.0.1:80", "[::1]:1", "[fe80::1%eth0]:1", "x1:1", "0x1g.example:1",
		"dns:a.example:1", "dns:///a.example:1", "dns:/a.example:1", "dns://10.0.0.1/a.example:1", "dns://10.0.0.1:53/a.example:1",
		"dns:///[::1]:1", "ipv4:127.0.0.1:1,10.0.0.1:2", "ipv4:///127.0.0.1:1", "ipv6:[::1]:1,[2001:db8::1]:2",
		"unix:/run/cw.sock", "unix:///run/cw.sock", "unix:cw.sock", "unix:/" + strings.Repeat("a", 106), "unix:/a%20b", "unix:/a b%zz",
		"unix-abstract:name", "unix-abstract:" + strings.Repeat("a", 107), "passthrough:///10.0.0.1:1", "passthrough:///unix:/run/cw.sock",
	} {
		if _, err := targets.Parse(text); err != nil {
			t.Errorf("%s %v", text, err)
		}
	}
}

func TestTargetsThatAreMalformed(t *testing.T) {
	for text, wrong := range map[string]string{
		"": "no port", "localhost": "no port", "localhost:": "no port", "[::1]": "no port", "dns:///a.example": "no port", "ipv4:10.0.0.1": "no port",
		"dns:50051": "no port", "http://localhost:50051": `scheme "http"`, "https://a.example": `scheme "https"`, "tcp://10.0.0.1:1": `scheme "tcp"`,
		"grpc://a:1": `scheme "grpc"`, "UNIX:/run/cw.sock": "no number", "local:": "no port", "localhost:5005l": "no number", "localhost:50051/": "no number",
		"localhost:http": "no number", "localhost:-1": "no number", "localhost:+1": "no number", "localhost:1 ": "no number", "localhost:1\n": "no number",
		"localhost:0": "1 to 65535", "localhost:65536": "1 to 65535", "127.0.0.1:99999": "1 to 65535", "a:18446744073709551617": "1 to 65535",
		":50051": "no host", "dns:///:50051": "no host", " localhost:1": "name has", "a b:1": "name has", "a/b:1": "name has", "user@host:1": "name has",
		"höst:1": "name has", "%6cocalhost:1": "name has", "::1:50051": "brackets", "[::1:50051": "IPv6", "[localhost]:1": "IPv6", "[127.0.0.1]:1": "IPv6",
		"[]:1": "IPv6", "a..b:1": "1 to 63", strings.Repeat("a", 64) + ":1": "1 to 63", ".:1": "1 to 63", "10.0.0.256:1": "four numbers",
		"127.1:1": "four numbers", "2130706433:1": "four numbers", "0x7f000001:1": "four numbers", "010.0.0.1:1": "four numbers",
		"ipv4:127.0.0.1:1,localhost:2": `"localhost:2"`, "ipv4:[::1]:1": `"[::1]:1"`, "ipv6:127.0.0.1:1": `"127.0.0.1:1"`, "ipv4:": `""`,
		"ipv4:127.0.0.1:1,": `""`, "ipv4:127.0.0.1:1,10.0.0.1": `"10.0.0.1"`, "ipv4:127.0.0.1:1,10.0.0.1:0": "1 to 65535", "ipv4://a/127.0.0.1:1": `"a"`,
		"dns:///a.example:1,b.example:1": "name has", "unix:": "no path", "unix://": "no path", "unix:///": "no path", "unix:/run/": "no path",
		"unix://run/cw.sock": "another machine", "unix:/a?b": "query", "unix:/a#b": "fragment", "unix:/a\nb": "control", "unix:/a\x00": "control",
		"unix:/" + strings.Repeat("a", 107): "108 bytes", "unix-abstract:": "no path", "unix-abstract:" + strings.Repeat("a", 108): "108 bytes",
	} {
		if _, err := targets.Parse(text); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatStaysOnThisMachine(t *testing.T) {
	for text, want := range map[string][2]bool{ // for certain, perhaps
		"localhost:1": {true, true}, "127.9.9.9:1": {true, true}, "[::1]:1": {true, true}, "[::ffff:127.0.0.1]:1": {true, true}, "unix:/a": {true, true},
		"unix-abstract:a": {true, true}, "dns:///localhost:1": {true, true}, "ipv4:127.0.0.1:1,127.0.0.2:1": {true, true},
		"ipv4:127.0.0.1:1,10.0.0.1:1": {false, true}, "ipv4:10.0.0.1:1,127.0.0.1:1": {false, true}, "dns://10.0.0.1/localhost:1": {false, true}, "LocalHost:1": {false, true}, "localhost.:1": {false, true},
		"localhost.localdomain:1": {false, true}, "localhost4:1": {false, true}, "localhost4.localdomain4:1": {false, true},
		"localhost6:1": {false, true}, "localhost6.localdomain6:1": {false, true}, "ip6-localhost:1": {false, true},
		"a.localhost:1": {false, true}, "ip6-loopback:1": {false, true}, "0.0.0.0:1": {false, true}, "[::]:1": {false, true},
		"10.0.0.1:1": {false, false}, "localhost.example:1": {false, false}, "notlocalhost:1": {false, false}, "128.0.0.1:1": {false, false},
		"127.0.0.1.example:1": {false, false},
	} {
		target, err := targets.Parse(text)
		if got := [2]bool{target.StaysHere(), target.MayStayHere()}; err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

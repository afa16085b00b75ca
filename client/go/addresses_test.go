package counterweight_test

import (
	"strings"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
)

func TestAListHasAddressesOfItsScheme(t *testing.T) {
	for target, wrong := range map[string]string{
		"ipv4:127.0.0.1:1,127.0.0.1:2": "", "ipv4:127.0.0.1": "", "ipv6:[::1]:1,[::1]": "", "dns:///a.example:1": "",
		"ipv4:127.0.0.1:1,localhost:2": `"localhost:2"`, "ipv4:[::1]:1": `"[::1]:1"`, "ipv6:127.0.0.1:1": `"127.0.0.1:1"`,
		"ipv4:": `""`, "ipv4:127.0.0.1:1,": `""`,
	} {
		client, err := cw.New(target)
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v", target, err)
		}
		if client != nil {
			_ = client.Close()
		}
	}
}

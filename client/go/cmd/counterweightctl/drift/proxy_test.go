package drift

import (
	"net/http"
	"testing"
)

func TestAPageOfThisMachineIsReadWithoutAProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} {
		t.Setenv(name, "http://proxy.example:3128")
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	for host, direct := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost.": true, "a.localhost": true, "127.0.0.9": true, "[::1]": true, "0.0.0.0": true,
		"metrics.example": false, "10.0.0.1": false,
	} {
		request, err := http.NewRequest(http.MethodGet, "http://"+host+":9464/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := client.Transport.(*http.Transport).Proxy(request)
		if err != nil || (proxy == nil) != direct {
			t.Errorf("%s: %v, %v", host, proxy, err)
		}
	}
}

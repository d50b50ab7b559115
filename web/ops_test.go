package web_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/web"
)

// TestProfiles checks that profiles are served on loopback, or if the setting pprof allows it. The command
// line, which may contain keys, is never served.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, listen  string
		pprof, served bool
	}{
		{"on loopback", "127.0.0.1:0", false, true},
		{"on the network", "0.0.0.0:0", false, false},
		{"on the network, with the setting", "0.0.0.0:0", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, &backend{}, web.Options{OpsListen: c.listen, Pprof: c.pprof})
			run(t, s)
			base := "http://" + s.OpsAddr().String()
			for _, profile := range []string{"", "heap?debug=1", "goroutine?debug=1", "symbol"} {
				want := http.StatusNotFound
				if c.served {
					want = http.StatusOK
				}
				if status, _ := fetch(t, base+"/debug/pprof/"+profile); status != want {
					t.Errorf("%q: %d, want %d", profile, status, want)
				}
			}
			_, index := fetch(t, base+"/debug/pprof/")
			if strings.Contains(index, "cmdline") || strings.Contains(index, "heap") != c.served {
				t.Errorf("the index: %s", index)
			}
			for _, path := range []string{"pprof/cmdline", "pprof//cmdline", "pprof/nothing", "vars"} {
				if status, body := fetch(t, base+"/debug/"+path); status != http.StatusNotFound {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
			if status, _ := fetch(t, base+"/metrics"); status != http.StatusOK {
				t.Errorf("metrics: %d", status)
			}
		})
	}
}

func fetch(t *testing.T, address string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(read)
}

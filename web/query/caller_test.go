package query

import "testing"

func TestHTTPS(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"": false, "http://h": false, "https://h/x": true, "HTTPS://h": true, "h": false, "https://%": false,
	} {
		if got := HTTPS(url); got != want {
			t.Errorf("%q: %v", url, got)
		}
	}
}

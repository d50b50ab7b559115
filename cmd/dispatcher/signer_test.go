package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
)

// "listen" takes requests as upstreams are asked, with a nonce and a time of their own, and nobody else's.
func TestListenVerifiesWhatUpstreamsAreAsked(t *testing.T) {
	t.Parallel()
	for _, signer := range []string{
		`{"type":"sorted-kv","alg":"md5","nonce":"nonce_str"}`, `{"type":"wechat-v3-rsa","mchid":"1900009191"}`,
		`{"type":"sorted-kv","alg":"rsa2","exclude":["sign"],"sign_type":"RSA2","time":"timestamp","time_format":"datetime"}`,
	} {
		use, err := outbound.UseOf(signer)
		if err != nil {
			t.Fatal(err)
		}
		key := signingKey(t, use, 0)
		term := newTerminal()
		server := httptest.NewServer(newReceiver(t, term, listenCommand{
			Respond: []string{"200"}, Signer: signer, Secret: []string{receiversForm(t, use, key)},
		}))
		for range 2 {
			if status := sendTo(t, server.URL, signer, key); status != 200 {
				t.Errorf("%s: answered with %d:\n%s", signer, status, term.stdout.String())
			}
		}
		if status := sendTo(t, server.URL, signer, signingKey(t, use, 1)); status != 401 {
			t.Errorf("%s: another secret's is answered with %d", signer, status)
		}
		server.Close()
	}
}

func TestSignerListTellsWhatIsFresh(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	if code := term.invoke("signer", "list", "--json"); code != exitOK {
		t.Fatal(code, term.stderr.String())
	}
	for _, option := range []string{"nonce", "time", "time_format", "mchid"} {
		if !strings.Contains(term.stdout.String(), `"name": "`+option+`"`) {
			t.Errorf("%s is not told", option)
		}
	}
}

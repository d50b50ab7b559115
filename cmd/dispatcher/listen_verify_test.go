package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// rsaPair are two keys that are made once: it takes a while.
var rsaPair = sync.OnceValue(func() (keys [2][]byte) {
	for i := range keys {
		var err error
		if keys[i], err = outbound.NewSecret(outbound.UseRSA); err != nil {
			panic(err)
		}
	}
	return keys
})

// signingKey returns one of two keys of a use.
func signingKey(t *testing.T, use string, n int) []byte {
	t.Helper()
	switch use {
	case outbound.UseRSA:
		return rsaPair()[n]
	case outbound.UseBasic:
		return []byte([]string{"shop:hunter22", "shop:hunter11"}[n])
	}
	key, err := outbound.NewSecret(use)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// receiversForm is how a receiver is given a key: the public one of a pair, else the secret.
func receiversForm(t *testing.T, use string, key []byte) string {
	t.Helper()
	public, err := outbound.PublicOf(use, key)
	if err != nil {
		t.Fatal(err)
	}
	if public != "" {
		return public
	}
	return outbound.FormatSecretFor(use, key)
}

// sendTo has the program's own client sign and send a request, and returns its answer's status.
func sendTo(t *testing.T, url, signer string, keys ...[]byte) int {
	t.Helper()
	guard, err := outbound.NewGuard([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	client, err := outbound.New(outbound.Options{Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	r := outbound.Request{
		ID: "cb_01JD0000000000000000000001", Number: 1, URL: url + "/notify?shop=7", Method: "POST", ContentType: "application/json",
		Body: []byte(`{"paid":10000}`), Timeout: 10 * time.Second, Signer: signer,
	}
	for _, key := range keys {
		r.Secrets = append(r.Secrets, outbound.Secret{ID: "sec_1", Key: key})
	}
	response := client.Send(t.Context(), r)
	if response.Class == store.ClassSignError || response.Class == store.ClassInvalidRequest {
		t.Fatalf("%s: %s %s", signer, response.Class, response.Error)
	}
	return response.Status
}

// Whatever signs, "listen" takes what the program's own client sends, with either secret of a rotation and with the public key alone, and
// refuses another secret and another signer.
func TestListenVerifiesEverySigner(t *testing.T) {
	t.Parallel()
	for _, signer := range []string{
		"standard-v1", "standard-v1a", "hmac-sha256-body", `{"type":"hmac-sha256-body","header":"X-Hub-Signature-256"}`,
		"t-v1", `{"type": "t-v1", "header": "Stripe-Signature", "key": "written"}`,
		"sorted-kv", `{"type":"sorted-kv","alg":"md5","put":{"in":"query","name":"sig"}}`, `{"type":"sorted-kv","put":{"in":"header","name":"X-Sign"}}`,
		`{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2"}`, "wechat-v3-rsa", "basic", "bearer",
	} {
		t.Run(signer, func(t *testing.T) {
			t.Parallel()
			use, err := outbound.UseOf(signer)
			if err != nil {
				t.Fatal(err)
			}
			present, former := signingKey(t, use, 0), signingKey(t, use, 1)
			term := newTerminal()
			r := newReceiver(t, term, listenCommand{
				Respond: []string{"200"}, Signer: signer, Secret: []string{receiversForm(t, use, former), receiversForm(t, use, present)},
			})
			server := httptest.NewServer(r)
			defer server.Close()
			if status := sendTo(t, server.URL, signer, present); status != 200 {
				t.Errorf("what it signs is answered with %d:\n%s", status, term.stdout.String())
			}
			if !strings.Contains(term.stdout.String(), "signature ok, by secret 2 of 2") {
				t.Errorf("does not say which secret it was:\n%s", term.stdout.String())
			}

			alone := newReceiver(t, term, listenCommand{Respond: []string{"200"}, Signer: signer, Secret: []string{receiversForm(t, use, former)}})
			one := httptest.NewServer(alone)
			defer one.Close()
			if status := sendTo(t, one.URL, signer, present); status != 401 {
				t.Errorf("another secret's is answered with %d", status)
			}
			if status := sendTo(t, one.URL, "none"); status != 401 {
				t.Errorf("what is not signed is answered with %d", status)
			}
			for _, want := range []string{"signature wrong: no signature matches", "signature wrong: signature headers are missing"} {
				if !strings.Contains(term.stdout.String(), want) {
					t.Errorf("does not say %q:\n%s", want, term.stdout.String())
				}
			}
			// During a rotation a signer with room for two signs with both.
			both := sendTo(t, one.URL, signer, present, former) == 200
			switch base, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(strings.ReplaceAll(signer, " ", ""), `{"type":`), `"`), `"`); base {
			case "standard-v1", "standard-v1a", "hmac-sha256-body", "t-v1":
				if !both {
					t.Error("the former secret does not verify during a rotation")
				}
			}
		})
	}
}

// Secrets may stand in files, also several HMAC ones with commas; a wrong one is never shown.
func TestListenReadsSecretsOfEachForm(t *testing.T) {
	t.Parallel()
	hmac := outbound.FormatSecret(signingKey(t, outbound.UseHMAC, 0))
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(hmac+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	private := outbound.FormatSecretFor(outbound.UseRSA, rsaPair()[0])
	for name, tc := range map[string]struct {
		cmd     listenCommand
		secrets int
		wrong   string
	}{
		"a file":             {listenCommand{Secret: []string{"@" + file}}, 1, ""},
		"commas":             {listenCommand{Secret: []string{hmac + "," + hmac, hmac}}, 3, ""},
		"a comma in a text":  {listenCommand{Signer: "bearer", Secret: []string{"token,token"}}, 1, ""},
		"a private key":      {listenCommand{Signer: "wechat-v3-rsa", Secret: []string{private}}, 1, ""},
		"none":               {listenCommand{Signer: "none"}, 0, ""},
		"nothing":            {listenCommand{}, 0, ""},
		"no file":            {listenCommand{Secret: []string{"@/does/not/exist"}}, 0, "--secret 1: cannot read /does/not/exist"},
		"another use's":      {listenCommand{Signer: "standard-v1a", Secret: []string{hmac}}, 0, "it wants the public key, whpk_ and base64"},
		"a signer alone":     {listenCommand{Signer: "basic"}, 0, "--signer: give --secret too, user:password"},
		"a secret of none":   {listenCommand{Signer: "none", Secret: []string{hmac}}, 0, "signs nothing"},
		"an unknown signer":  {listenCommand{Signer: "rot13"}, 0, "--signer is one of standard-v1"},
		"an unknown option":  {listenCommand{Signer: `{"type":"t-v1","salt":"x"}`, Secret: []string{hmac}}, 0, "--signer salt is unknown"},
		"a signer in a file": {listenCommand{Signer: "@/does/not/exist"}, 0, "--signer cannot read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.cmd.Addr, tc.cmd.Delay, tc.cmd.Respond = "127.0.0.1:0", "0s", []string{"200"}
			r, err := tc.cmd.receiver(&newTerminal().console)
			if tc.wrong == "" {
				if err != nil || len(r.secrets) != tc.secrets {
					t.Errorf("got %+v, %v", r, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("got %v, want %q", err, tc.wrong)
			}
			if err != nil && strings.Contains(err.Error(), hmac) {
				t.Errorf("the secret is shown: %s", err)
			}
		})
	}
}

// What has nothing of the signer that was expected is told by what it has.
func TestListenSaysBySignerWhatItLooksLike(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	r := newReceiver(t, term, listenCommand{Respond: []string{"200"}, Signer: "bearer", Secret: []string{"token-token"}})
	server := httptest.NewServer(r)
	defer server.Close()
	for signer, want := range map[string]string{
		"standard-v1": "looks signed by standard-v1\n", "standard-v1a": "looks signed by standard-v1a\n", "wechat-v3-rsa": "looks signed by wechat-v3-rsa\n",
	} {
		use, err := outbound.UseOf(signer)
		if err != nil {
			t.Fatal(err)
		}
		if status := sendTo(t, server.URL, signer, signingKey(t, use, 0)); status != 401 || !strings.Contains(term.stdout.String(), want) {
			t.Errorf("%s: answered with %d:\n%s", signer, status, term.stdout.String())
		}
	}
}

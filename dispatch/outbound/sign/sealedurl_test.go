package sign

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func sealedRequest(t *testing.T, text string) *Request {
	t.Helper()
	key, err := ParseSecretFor(UseURL, text)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse("https://robot.example/")
	if err != nil {
		t.Fatal(err)
	}
	return &Request{
		URL: u, Body: []byte(`{"a":1}`), Secrets: []Secret{{ID: "s1", Key: key}},
		At: time.UnixMilli(1599360473123), Seconds: "1599360473",
	}
}

const (
	dingTalkSign = "irKdoCRlHdl%2B63ikJkF5vUyRbaBf8QKVRI3eplFGeCk%3D"
	feishuSign   = "bMjxHlJJlXMW0yjKHZsmMvrFnAOfMlmWpRUsH3qMAek="
)

// TestSealedURLs checks the signatures of robots. The values are those of another implementation of HMAC.
func TestSealedURLs(t *testing.T) {
	t.Parallel()
	const robot = "https://robot.example/hook/path-secret?access_token=query-secret"
	for _, c := range []struct{ signer, secret, url, body string }{
		{SealedURL, robot, robot, ""},
		{DingTalk, robot, robot, ""},
		{DingTalk, FormatURLSecret(robot, "SECtest"),
			robot + "&timestamp=1599360473123&sign=" + dingTalkSign, ""},
		{DingTalk, FormatURLSecret("https://robot.example/x", "SECtest"),
			"https://robot.example/x?timestamp=1599360473123&sign=" + dingTalkSign, ""},
		{Feishu, robot, robot, ""},
		{Feishu, FormatURLSecret(robot, "SECtest"), robot,
			`{"timestamp":"1599360473","sign":"` + feishuSign + `","a":1}`},
	} {
		got, err := NewCache().Sign(c.signer, sealedRequest(t, c.secret))
		if err != nil {
			t.Fatal(err)
		}
		if got.URL.String() != c.url || string(got.Body) != c.body || got.KeyID != "s1" {
			t.Errorf("%s: %s %s", c.signer, got.URL, got.Body)
		}
		for _, secret := range []string{
			"path-secret", "query-secret", "/hook/path-secret?access_token=query-secret",
		} {
			if strings.Contains(c.secret, secret) && !slices.Contains(got.Hidden, secret) {
				t.Errorf("%s: %q is not hidden: %q", c.signer, secret, got.Hidden)
			}
		}
	}
}

// TestSealedWebhook checks that a sealed URL with a signing secret is signed as Standard Webhooks v1.
func TestSealedWebhook(t *testing.T) {
	t.Parallel()
	const receiver = "https://robot.example/hook/path-secret"
	key := []byte("signing-secret-3-24bytes")
	r := sealedRequest(t, FormatURLSecret(receiver, FormatSecret(key)))
	r.ID = "cb_1"
	got, err := NewCache().Sign(SealedURL, r)
	if err != nil {
		t.Fatal(err)
	}
	r.Secrets = []Secret{{ID: "s1", Key: key}}
	want, err := NewCache().Sign(Standard, r)
	if err != nil || got.Standard != want.Standard || want.Standard == "" || got.URL.String() != receiver {
		t.Errorf("signed %q to %s, want %q, %v", got.Standard, got.URL, want.Standard, err)
	}
	if !slices.Contains(got.Hidden, FormatSecret(key)) {
		t.Errorf("the signing secret is not hidden: %q", got.Hidden)
	}
}

// TestShortPasswordIsHidden checks that each password that a mail sink may have is masked, and that a part of
// another value is masked after it.
func TestShortPasswordIsHidden(t *testing.T) {
	t.Parallel()
	r := sealedRequest(t, "smtps://ops:YWJ1@robot.example/x?from=ops@shop.example")
	r.URL.Scheme = "smtps"
	got, err := NewCache().Sign(SealedURL, r)
	if err != nil {
		t.Fatal(err)
	}
	last := len(got.Hidden) - 1
	if got.Hidden[last] != "YWJ1" || slices.Contains(got.Hidden, "ops") {
		t.Errorf("hidden: %q", got.Hidden)
	}
}

func TestSealedURLIsForOneHost(t *testing.T) {
	t.Parallel()
	for _, other := range []string{
		"http://robot.example/hook", "https://robot.example:8443/hook", "https://other.example/hook",
		"smtps://robot.example/hook",
	} {
		_, err := NewCache().Sign(SealedURL, sealedRequest(t, other))
		if _, isKey := errors.AsType[*KeyError](err); err == nil || isKey {
			t.Errorf("%s: %v; the request must be invalid", other, err)
		}
	}
}

// TestCallersCannotUseSealedURLs checks that only the alerts of the dispatcher use these signers.
func TestCallersCannotUseSealedURLs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{SealedURL, DingTalk, Feishu} {
		if _, wrong := Parse([]byte(`"` + name + `"`)); wrong == nil {
			t.Errorf("%s can be parsed", name)
		}
		if _, wrong := Parse([]byte(`{"type":"` + name + `"}`)); wrong == nil {
			t.Errorf("%s can be parsed as an object", name)
		}
		kind, err := KindOf(name)
		if err != nil || !kind.IsBound() || !kind.SendsSecret() || CanMake(kind.Use) || IsUse(kind.Use) {
			t.Errorf("%s: %+v, %v", name, kind, err)
		}
		if slices.Contains(Names(), name) {
			t.Errorf("%s is in the list", name)
		}
	}
	for _, text := range []string{
		"", "robot", "/x", "https://", "https://robot.example/ x", "https://a\nb\nc",
	} {
		if _, err := ParseSecretFor(UseURL, text); err == nil {
			t.Errorf("%q is a secret", text)
		}
	}
}

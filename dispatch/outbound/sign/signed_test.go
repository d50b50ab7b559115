package sign

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// rsaSecrets are generated once, because that is slow.
var rsaSecrets = sync.OnceValue(func() (secrets [2]Secret) {
	for i := range secrets {
		var err error
		secrets[i].Key, err = NewSecret(UseRSA)
		if err != nil {
			panic(err)
		}
	}
	return secrets
})

// A scenario has the settings for the requests in testdata/signed.txt and testdata/verify.txt that follow.
type scenario struct {
	signer, id, label string
	at                time.Time
	secrets           []Secret
}

func TestSign(t *testing.T) {
	t.Parallel()
	var d scenario
	transcript.Run(t, "testdata/signed.txt", func(line string) string {
		if d.apply(line) {
			return ""
		}
		return d.sign(t, line)
	})
}

// apply applies a line that is a setting. It returns false for any other line.
func (d *scenario) apply(line string) bool {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "signer":
		d.signer = rest
	case "id":
		d.id = rest
	case "label":
		d.label = rest
	case "at":
		nanoseconds, _ := strconv.ParseInt(rest, 10, 64)
		d.at = time.Unix(0, nanoseconds)
	case "keys":
		use, texts, _ := strings.Cut(rest, " ")
		d.secrets = secretsOf(use, strings.Split(texts, " | "))
	default:
		return false
	}
	return true
}

// TestVerify checks that changed requests, and those that are too old or too new, do not verify.
func TestVerify(t *testing.T) {
	t.Parallel()
	var d scenario
	transcript.Run(t, "testdata/verify.txt", func(line string) string {
		if d.apply(line) {
			return ""
		}
		return d.arrive(t, strings.Split(line, " ; "))
	})
}

// arrive signs a request, changes it, and returns the result of Verify.
func (d *scenario) arrive(t *testing.T, changes []string) string {
	t.Helper()
	d.at = time.Now()
	for _, change := range changes {
		if ago, ok := strings.CutPrefix(change, "ago "); ok {
			d.at = d.at.Add(-duration(ago))
		}
	}
	r := d.request("application/json", "a=1", `{"paid":10000}`)
	s, err := NewCache().Sign(d.signer, &r)
	if err != nil {
		t.Fatal(err)
	}
	a, by := d.sent(&r, &s), d.signer
	a.tolerance = 0
	for _, change := range changes {
		what, text, _ := strings.Cut(change, " ")
		switch what {
		case "by":
			by = text
		case "tolerance":
			a.tolerance = duration(text)
		case "keyless":
			a.secrets = []Secret{{}}
		case "body":
			a.body = []byte(text)
		case "url":
			a.url = &url.URL{Path: text, RawQuery: "a=1"}
		case "query":
			a.url = &url.URL{Path: "/query", RawQuery: text}
		case "header":
			name, value, _ := strings.Cut(text, ": ")
			a.header.Set(name, value)
		case "swap":
			old, other, _ := strings.Cut(text, " for ")
			for name, values := range a.header {
				a.header.Set(name, strings.Replace(values[0], old, other, 1))
			}
		}
	}
	if err := Verify(by, a.secrets, a.header, a.url, a.body, a.tolerance); err != nil {
		return err.Error()
	}
	return "verified"
}

func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text) // transcripts have valid durations only
	return d
}

// secretsOf parses the written form of secrets. A text that cannot be parsed is used as the key itself.
func secretsOf(use string, texts []string) []Secret {
	secrets := make([]Secret, len(texts))
	switch use {
	case "none":
		return nil
	case UseRSA:
		made := rsaSecrets()
		secrets = made[:]
	}
	for i, text := range texts {
		if key, err := ParseSecretFor(use, text); err == nil {
			secrets[i].Key = key
		} else if use != UseRSA {
			secrets[i].Key = []byte(text)
		}
	}
	for i := range secrets {
		secrets[i].ID = [...]string{"new", "old"}[i]
	}
	return secrets
}

// sign signs a request, verifies it, and returns what was added.
func (d *scenario) sign(t *testing.T, line string) string {
	t.Helper()
	contentType, query := "", ""
	if rest, ok := strings.CutPrefix(line, "["); ok && strings.Contains(rest, "/") {
		contentType, line, _ = strings.Cut(rest, "] ")
	}
	if rest, ok := strings.CutPrefix(line, "?"); ok {
		query, line, _ = strings.Cut(rest, " ")
	}
	r := d.request(contentType, query, line)
	s, err := NewCache().Sign(d.signer, &r)
	if err != nil {
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the key: %v", d.signer, err)
		}
		if _, isKeys := errors.AsType[*KeyError](err); isKeys {
			return "key: " + err.Error()
		}
		return "request: " + err.Error()
	}
	sent := d.sent(&r, &s)
	d.verify(t, &r, &s, sent)
	again, err := NewCache().Sign(d.signer, &r)
	text, textAgain := d.describe(&r, &s), d.describe(&r, &again)
	redacted := d.masked(text)
	if isFresh := strings.Contains(redacted, "NONCE"); err != nil || isFresh == (text == textAgain) {
		t.Errorf("%s: signed twice as\n%s\n%s\n%v", d.signer, text, textAgain, err)
	}
	return redacted
}

func (d *scenario) request(contentType, query, body string) Request {
	if len(d.secrets) > 0 {
		d.secrets[0].Label = d.label
	}
	return Request{
		ID: d.id, Method: "POST", ContentType: contentType, Body: []byte(body), Secrets: d.secrets, At: d.at,
		Seconds: strconv.FormatInt(d.at.Unix(), 10),
		URL:     &url.URL{Scheme: "https", Host: "shop.example", Path: "/query", RawQuery: query},
	}
}

// sent returns the request as its receiver has it.
func (d *scenario) sent(r *Request, s *Signature) *receivedRequest {
	a := &receivedRequest{
		secrets: r.Secrets, header: make(http.Header), url: r.URL, body: r.Body, tolerance: -1,
	}
	a.header.Set(HeaderID, r.ID)
	a.header.Set(HeaderTimestamp, r.Seconds)
	a.header.Set(HeaderSignature, s.Standard)
	a.header.Set("Content-Type", r.ContentType)
	for _, h := range s.Headers {
		a.header.Set(h.Name, h.Value)
	}
	if s.Body != nil {
		a.body = s.Body
	}
	if s.Query != "" {
		u := *r.URL
		u.RawQuery = s.Query
		a.url = &u
	}
	return a
}

// describe returns what was added to a request.
func (d *scenario) describe(r *Request, s *Signature) string {
	var lines []string
	if s.Standard != "" {
		lines = append(lines, "webhook-signature: "+s.Standard)
	}
	for _, h := range s.Headers {
		lines = append(lines, h.Name+": "+h.Value+map[bool]string{true: " (masked)"}[h.Masked])
	}
	if s.Query != "" {
		lines = append(lines, "?"+s.Query)
	}
	if s.Body != nil {
		lines = append(lines, strings.ReplaceAll(string(s.Body), "\n", "«\\n»"))
	}
	if known, err := readSigner(d.signer); err == nil && known.name == SortedKV {
		kv, a := known.options.(*sortedKV), d.sent(r, s)
		source, _ := kvSource(r.ContentType, a.body, a.url.RawQuery) // cannot fail: Sign parsed it
		lines = append(lines, "signed: "+strings.ReplaceAll(kv.canonical(source.fields), "\n", "«\\n»"))
	}
	return strings.Join(append(lines, "by "+cmp.Or(s.KeyID, "no key")), "\n")
}

var (
	rsaValue    = regexp.MustCompile(`[A-Za-z0-9+/%]{340,}(=|%3D)*`)
	weChatMark  = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	kvMark      = regexp.MustCompile(`\b[a-z0-9]{32}\b`)
	kvSignature = regexp.MustCompile(`\b[0-9A-F]{32,64}\b`)
)

// masked replaces values that differ each time.
func (d *scenario) masked(text string) string {
	text = rsaValue.ReplaceAllString(text, "SIGNATURE")
	if strings.Contains(d.signer, WeChatV3) {
		text = weChatMark.ReplaceAllString(text, "NONCE")
	}
	if strings.Contains(d.signer, `"nonce"`) {
		text = kvSignature.ReplaceAllString(kvMark.ReplaceAllString(text, "NONCE"), "SIGNATURE")
	}
	return text
}

// verify checks that a signed request verifies with its secret, with either secret of a rotation if the
// signer has room for two signatures, and with the public key alone. A changed body and a missing secret must
// fail.
func (d *scenario) verify(t *testing.T, r *Request, s *Signature, a *receivedRequest) {
	t.Helper()
	kind, err := KindOf(d.signer)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(body []byte, secrets ...Secret) error {
		return Verify(d.signer, secrets, a.header, a.url, body, -1)
	}
	switch {
	case kind.Use == "":
		if err := verify(a.body); err != nil {
			t.Errorf("%s: %v", d.signer, err)
		}
		return
	case len(r.Secrets) == 0:
		return // without a secret the default signer signs nothing
	}
	if err := verify(a.body, r.Secrets[0]); err != nil {
		t.Errorf("%s: with the new secret: %v", d.signer, err)
	}
	if len(r.Secrets) == 2 {
		old := verify(a.body, r.Secrets[1])
		isRight := s.KeyID == "new" && errors.Is(old, ErrSignature)
		if s.KeyID == "new,old" {
			isRight = old == nil
		}
		if !isRight {
			t.Errorf("%s: signed by %q, but with the old secret: %v", d.signer, s.KeyID, old)
		}
	}
	if other := bytes.Replace(a.body, []byte("1"), []byte("2"), 1); !bytes.Equal(other, a.body) {
		if err := verify(other, r.Secrets...); (err == nil) != kind.SendsSecret() {
			t.Errorf("%s: another body: %v", d.signer, err)
		}
	}
	if err := Verify(d.signer, r.Secrets, http.Header{}, nil, nil, 0); !errors.Is(err, ErrHeaders) {
		t.Errorf("%s: without a signature: %v", d.signer, err)
	}
	if err := verify(a.body); !errors.Is(err, ErrNoSecret) {
		t.Errorf("%s: with no secret: %v", d.signer, err)
	}
	public, err := PublicOf(kind.Use, r.Secrets[0].Key)
	if err != nil || (public == "") == IsPrivate(kind.Use) {
		t.Fatalf("%s: public key %q, %v", d.signer, public, err)
	}
	if public == "" {
		return
	}
	key, err := ParseVerifierFor(kind.Use, public)
	if err != nil {
		t.Fatalf("%s: %v", public, err)
	}
	if err := verify(a.body, Secret{Key: key}); err != nil {
		t.Errorf("%s: with the public key: %v", d.signer, err)
	}
	if again, err := PublicOf(kind.Use, key); again != public || err != nil {
		t.Errorf("the public key of a public key: %q, %v", again, err)
	}
}

func TestParseSigner(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/signers.txt", func(line string) string {
		text, wrong := Parse([]byte(line))
		if text == "" {
			if Verify(line, nil, nil, nil, nil, 0) == nil || SignsBody(line) {
				t.Errorf("%s is accepted as a signer", line)
			}
			if use, err := UseOf(line); err == nil && newSigner(line) == nil {
				t.Errorf("%s needs a secret for %s", line, use)
			}
			return problems(t, wrong)
		}
		checkCanonical(t, text)
		kind, err := KindOf(text)
		if err != nil || kind.Use != "" && !IsUse(kind.Use) {
			t.Errorf("%s: use %q, %v", text, kind.Use, err)
		}
		return fmt.Sprintf("%s, takes %s, signs the body %v", text, cmp.Or(kind.Use, "nothing"),
			SignsBody(text))
	})
}

// checkCanonical checks that Parse returns its own result unchanged.
func checkCanonical(t *testing.T, text string) {
	t.Helper()
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") {
		raw = parse.Quote(text)
	}
	if again, _ := Parse(raw); again != text {
		t.Errorf("%s is parsed again to %s", text, again)
	}
}

// problems returns the errors as text, one a line.
func problems(t *testing.T, wrong []store.FieldError) string {
	t.Helper()
	var lines []string
	for _, w := range wrong {
		lines = append(lines, cmp.Or(w.Field, "the whole")+": "+w.Message)
		if w.Message == "" || strings.ContainsAny(w.Field+w.Message, "\r\n\x00\x1b") {
			t.Errorf("bad error %q", w)
		}
	}
	return strings.Join(lines, "\n")
}

func FuzzParseSigner(f *testing.F) {
	for _, line := range transcript.Inputs(f, "testdata/signers.txt") {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		text, wrong := Parse([]byte(raw))
		if (text == "") != (len(wrong) > 0) {
			t.Fatalf("%q, %v", text, wrong)
		}
		if text == "" {
			return
		}
		checkCanonical(t, text)
		if _, err := UseOf(text); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSignerInfos(t *testing.T) {
	t.Parallel()
	for i, info := range Infos() {
		use, err := UseOf(info.Name)
		if err != nil || use != info.Use || info.Description == "" || info.Name != Names()[i] {
			t.Errorf("%s: use %q, %v; info %+v", Names()[i], use, err, info)
		}
		// An option with its default is the same as no option.
		for _, o := range info.Options {
			def := strings.TrimSuffix(string(o.Default), ` or, with rsa2, ["sign","sign_type"]`)
			text := `{"type":"` + info.Name + `","` + o.Name + `":` + def + `}`
			if got, wrong := Parse([]byte(text)); got != info.Name || o.Description == "" {
				t.Errorf("%s is %s, %v", text, got, wrong)
			}
		}
	}
	if len(Infos()) != len(Names()) || Names()[0] != Standard {
		t.Errorf("signers are %q; the default comes first", Names())
	}
}

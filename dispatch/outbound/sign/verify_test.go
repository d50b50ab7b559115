package sign_test

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

// TestEverySignerIsVerified: what is sent is what Verify takes, with either secret of a rotation where the signer has room for two
// signatures, and with nothing but the public key; and nothing else is.
func TestEverySignerIsVerified(t *testing.T) {
	t.Parallel()
	for _, signer := range signtest.Every {
		use := signtest.UseOf(t, signer)
		secrets := []sign.Secret{{ID: "new", Label: "serial-1", Key: signtest.Secret(t, use, 0)}, {ID: "old", Key: signtest.Secret(t, use, 1)}}
		got, err := signtest.Send(t, signer, sign.Request{Secrets: secrets})
		if err != nil {
			t.Errorf("%s: %v", signer, err)
			continue
		}
		body := got.Body
		verify := func(body []byte, secrets ...sign.Secret) error {
			return sign.Verify(signer, secrets, got.Header, got.URL, body, 0)
		}
		if err := verify(body, secrets[0]); err != nil {
			t.Errorf("%s: with the new secret: %v", signer, err)
		}
		old := verify(body, secrets[1])
		if both := got.KeyID == "new,old"; both != (old == nil) || !both && (got.KeyID != "new" || !errors.Is(old, sign.ErrSignature)) {
			t.Errorf("%s: signed by %q, but with the old secret: %v", signer, got.KeyID, old)
		}
		other := []byte(`{"paid":10001,` + strings.TrimPrefix(string(body), `{"paid":10000,`))
		if err := verify(other, secrets...); (err == nil) != (use == sign.UseBasic || signer == sign.Bearer) {
			t.Errorf("%s: another body: %v", signer, err)
		}
		if err := sign.Verify(signer, secrets, http.Header{}, nil, nil, 0); !errors.Is(err, sign.ErrHeaders) {
			t.Errorf("%s: without anything that could be one: %v", signer, err)
		}
		if err := verify(body); !errors.Is(err, sign.ErrNoSecret) {
			t.Errorf("%s: with no secret: %v", signer, err)
		}
		public, err := sign.PublicOf(use, secrets[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		if public == "" {
			continue
		}
		key, err := sign.ParseVerifierFor(use, public)
		if err != nil {
			t.Fatalf("%s: %v", public, err)
		}
		if err := verify(body, sign.Secret{Key: key}); err != nil {
			t.Errorf("%s: with the public key: %v", signer, err)
		}
		if again, err := sign.PublicOf(use, key); again != public || err != nil {
			t.Errorf("the public key of a public key: %q, %v", again, err)
		}
	}
	if err := sign.Verify("none", nil, nil, nil, nil, 0); err != nil {
		t.Errorf("none: %v", err)
	}
	if err := sign.Verify("x", signtest.Secrets(signtest.Shortest()), nil, nil, nil, 0); err == nil {
		t.Error("an unknown signer is verified")
	}
}

func TestTimestampsAreVerified(t *testing.T) {
	t.Parallel()
	for signer, header := range map[string]string{
		"standard-v1": "webhook-timestamp", "standard-v1a": "webhook-timestamp", "t-v1": "X-Signature", "wechat-v3-rsa": "Wechatpay-Timestamp",
	} {
		secrets := signtest.Secrets(signtest.Secret(t, signtest.UseOf(t, signer), 0))
		a, err := signtest.Send(t, signer, sign.Request{At: time.Now().Add(-time.Hour), Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		for tolerance, want := range map[time.Duration]error{0: sign.ErrTimestamp, 2 * time.Hour: nil, -1: nil} {
			if err := sign.Verify(signer, secrets, a.Header, nil, a.Body, tolerance); !errors.Is(err, want) {
				t.Errorf("%s, an hour old, tolerance %v: %v, want %v", signer, tolerance, err, want)
			}
		}
		for _, wrong := range []string{"x", "", "t=x,v1=00", "v1=00", "t=1"} {
			a.Header.Set(header, wrong)
			if err := sign.Verify(signer, secrets, a.Header, nil, a.Body, -1); !errors.Is(err, sign.ErrHeaders) {
				t.Errorf("%s with %s: %q: %v", signer, header, wrong, err)
			}
		}
	}
}

// TestMerchantsAreVerified: nothing is taken that was not signed, or not now.
func TestMerchantsAreVerified(t *testing.T) {
	t.Parallel()
	const merchant = `{"type":"wechat-v3-rsa","mchid":"1900009191"}`
	secrets := signtest.Secrets(signtest.Secret(t, sign.UseRSA, 0))
	for name, c := range map[string]struct {
		signer    string
		ago       time.Duration
		old, new  string
		uri, body string
		want      error
	}{
		"as it is":         {signer: merchant},
		"old":              {signer: merchant, ago: time.Hour, want: sign.ErrTimestamp},
		"another merchant": {signer: `{"type":"wechat-v3-rsa","mchid":"1900009192"}`, want: sign.ErrSignature},
		"merchant changed": {signer: merchant, old: `mchid="1`, new: `mchid="2`, want: sign.ErrSignature},
		"another query":    {signer: merchant, uri: "/query?a=2", want: sign.ErrSignature},
		"another path":     {signer: merchant, uri: "/close?a=1", want: sign.ErrSignature},
		"another body":     {signer: merchant, body: "{}", want: sign.ErrSignature},
		"another nonce":    {signer: merchant, old: `nonce_str="`, new: `nonce_str="A`, want: sign.ErrSignature},
		"a later time":     {signer: merchant, old: `timestamp="`, new: `timestamp="0`, want: sign.ErrSignature},
		"another scheme":   {signer: merchant, old: "RSA2048", new: "SM3", want: sign.ErrHeaders},
		"no nonce":         {signer: merchant, old: "nonce_str", new: "nonce", want: sign.ErrHeaders},
		"no signature":     {signer: merchant, old: "signature", new: "sign", want: sign.ErrHeaders},
		"no number":        {signer: merchant, old: `timestamp="`, new: `timestamp="x`, want: sign.ErrHeaders},
		"as a platform":    {signer: sign.WeChatV3, want: sign.ErrHeaders},
	} {
		a, err := signtest.Send(t, merchant, sign.Request{At: time.Now().Add(-c.ago), Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		a.Header.Set("Authorization", strings.Replace(a.Header.Get("Authorization"), c.old, c.new, 1))
		if a.URL, err = url.ParseRequestURI(cmp.Or(c.uri, "/query?a=1")); err != nil {
			t.Fatal(err)
		}
		a.Body = []byte(cmp.Or(c.body, string(a.Body)))
		if err := a.Verify(c.signer, secrets...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, label := range []string{`a"b`, `a\`, "a,b"} {
		_, err := signtest.Send(t, merchant, sign.Request{Secrets: []sign.Secret{{Label: label, Key: secrets[0].Key}}})
		if _, ok := errors.AsType[*sign.KeyError](err); !ok {
			t.Errorf("a label that cannot stand between quotes: %v", err)
		}
	}
}

func TestTimestampedHasTheFormOfStripe(t *testing.T) {
	t.Parallel()
	got, err := signtest.Send(t, `{"type":"t-v1","header":"Stripe-Signature"}`, sign.Request{
		Secrets: signtest.Secrets(signtest.Secret(t, sign.UseHMAC, 0), signtest.Secret(t, sign.UseHMAC, 1)),
	})
	parts := strings.Split(got.Header.Get("Stripe-Signature"), ",")
	if err != nil || len(parts) != 3 || parts[0] != "t="+got.Header.Get("webhook-timestamp") || len(parts[1]) != 3+64 || len(parts[2]) != 3+64 || parts[1] == parts[2] {
		t.Errorf("%q, %v", parts, err)
	}
}

func TestWeChatV3NamesItsKey(t *testing.T) {
	t.Parallel()
	nonces := make(map[string]bool)
	key := signtest.Secret(t, sign.UseRSA, 0)
	for label, serial := range map[string]string{"5157F09EFDC096DE15EBE81A47057A7232F1B8E1": "5157F09EFDC096DE15EBE81A47057A7232F1B8E1", "": "sec_1"} {
		got, err := signtest.Send(t, sign.WeChatV3, sign.Request{Secrets: []sign.Secret{{ID: "sec_1", Label: label, Key: key}}})
		h := got.Header
		if err != nil || got.KeyID != "sec_1" || h.Get("Wechatpay-Serial") != serial || h.Get("Wechatpay-Signature-Type") != "WECHATPAY2-SHA256-RSA2048" || h.Get("Wechatpay-Timestamp") != h.Get("webhook-timestamp") {
			t.Errorf("%q: %v, %v", got.KeyID, h, err)
		}
		nonces[h.Get("Wechatpay-Nonce")] = true
	}
	if len(nonces) != 2 || nonces[""] {
		t.Errorf("nonces %v", nonces)
	}
	_, err := signtest.Send(t, sign.WeChatV3, sign.Request{Secrets: []sign.Secret{{Label: "证书\r\n", Key: key}}})
	if _, ok := errors.AsType[*sign.KeyError](err); !ok {
		t.Errorf("a label that cannot stand in a header: %v", err)
	}
}

// TestTheKeyMayBeTheWrittenSecret: libraries that do not decode secrets take "whsec_…" as it is.
func TestTheKeyMayBeTheWrittenSecret(t *testing.T) {
	t.Parallel()
	key := signtest.Secret(t, sign.UseHMAC, 0)
	written, err := signtest.Send(t, `{"type":"hmac-sha256-body","key":"written"}`, sign.Request{Secrets: signtest.Secrets(key)})
	plain, err2 := signtest.Send(t, "hmac-sha256-body", sign.Request{Secrets: signtest.Secrets([]byte(sign.FormatSecret(key)))})
	a, b := written.Header.Get("X-Signature-256"), plain.Header.Get("X-Signature-256")
	if err != nil || err2 != nil || a != b || a == "" {
		t.Errorf("%s and %s", a, b)
	}
}

// TestPublishedVectors: signatures as others have published them.
func TestPublishedVectors(t *testing.T) {
	t.Parallel()
	body := []byte(`{"test": 2432232314}`)
	const id, seconds = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"
	// Of the libraries of Standard Webhooks.
	secret, err := sign.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	v1, err := sign.NewCache().Sign("", &sign.Request{ID: id, Seconds: "1614265330", Body: body, Secrets: signtest.Secrets(secret)})
	if err != nil || v1.Standard != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("v1: %s, %v", v1.Standard, err)
	}
	key, err := sign.ParseSecretFor(sign.UseEd25519, "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
	if err != nil {
		t.Fatal(err)
	}
	// Of Svix, whose scheme v1a is.
	made, err := sign.NewCache().Sign(sign.StandardAsymmetric, &sign.Request{ID: id, Seconds: seconds, Body: body, Secrets: signtest.Secrets(key)})
	got := made.Standard
	if want := "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="; err != nil || got != want {
		t.Errorf("v1a: %s, %v", got, err)
	}
	if public, err := sign.PublicOf(sign.UseEd25519, key); err != nil || public != "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=" {
		t.Errorf("public key: %s, %v", public, err)
	}
	// Of GitHub's documentation.
	arrived, err := signtest.Send(t, `{"type":"hmac-sha256-body","header":"X-Hub-Signature-256"}`, sign.Request{
		Body: []byte("Hello, World!"), Secrets: signtest.Secrets([]byte("It's a Secret to Everybody")),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := arrived.Header.Get("X-Hub-Signature-256"); got != "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17" {
		t.Errorf("GitHub: %s", got)
	}
	// Of WeChat Pay's documentation, v2.
	for alg, want := range map[string]string{
		"md5":         "9A0A8659F005D6984697E2CA0A9CF3B7",
		"hmac-sha256": "6A9AE1657590FD6257D693A078E1C3E4BB6BA4DC30B23E0EE2496E54170DACD6",
	} {
		for contentType, body := range map[string]string{
			"application/xml":                   "<xml><mch_id>10000100</mch_id><appid>wxd930ea5d5a258f4f</appid><device_info>1000</device_info><body><![CDATA[test]]></body><nonce_str>ibuaiVcKdpRxkhJA</nonce_str><empty/>",
			"application/json":                  `{"mch_id":10000100,"appid":"wxd930ea5d5a258f4f","device_info":"1000","body":"test","nonce_str":"ibuaiVcKdpRxkhJ\u0041","empty":""`,
			"application/x-www-form-urlencoded": "mch_id=10000100&appid=wxd930ea5d5a258f4f&device_info=1000&body=tes%74&nonce_str=ibuaiVcKdpRxkhJA&empty=",
		} {
			added, end := "&sign="+want, ""
			switch contentType {
			case "application/xml":
				added, end = "<sign>"+want+"</sign>", "</xml>"
			case "application/json":
				added, end = `,"sign":"`+want+`"`, "}"
			}
			got, err := signtest.Send(t, `{"type":"sorted-kv","alg":"`+alg+`"}`, sign.Request{
				ContentType: contentType, Body: []byte(body + end), Secrets: signtest.Secrets([]byte("192006250b4c09247ec02edce69f6a2d")),
			})
			if err != nil || string(got.Body) != body+added+end {
				t.Errorf("%s over %s: %v\n got %s\nwant %s", alg, contentType, err, got.Body, body+added+end)
			}
		}
	}
}

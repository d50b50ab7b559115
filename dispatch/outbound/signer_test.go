package outbound

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestEverySignerIsVerified: what is sent is what VerifyAny takes, with either secret of a rotation where the signer has room for two
// signatures, and with nothing but the public key; and nothing else is.
func TestEverySignerIsVerified(t *testing.T) {
	t.Parallel()
	for _, signer := range signtest.Every {
		use := signtest.UseOf(t, signer)
		secrets := []sign.Secret{{ID: "new", Label: "serial-1", Key: signtest.Secret(t, use, 0)}, {ID: "old", Key: signtest.Secret(t, use, 1)}}
		got, body, resp := signed(t, func(r *Request) {
			r.Signer, r.Secrets = signer, secrets
			r.URL += "?a=b"
		})
		if resp.Class != store.ClassOK {
			t.Errorf("%s: %s %s", signer, resp.Class, resp.Error)
			continue
		}
		verify := func(body []byte, secrets ...sign.Secret) error {
			return sign.VerifyAny(signer, secrets, got.Header, got.URL, body, 0)
		}
		if err := verify(body, secrets[0]); err != nil {
			t.Errorf("%s: with the new secret: %v", signer, err)
		}
		old := verify(body, secrets[1])
		if both := resp.KeyID == "new,old"; both != (old == nil) || !both && (resp.KeyID != "new" || !errors.Is(old, sign.ErrSignature)) {
			t.Errorf("%s: signed by %q, but with the old secret: %v", signer, resp.KeyID, old)
		}
		other := []byte(`{"paid":10001,` + strings.TrimPrefix(string(body), `{"paid":10000,`))
		if err := verify(other, secrets...); (err == nil) != (use == sign.UseBasic || signer == sign.Bearer) {
			t.Errorf("%s: another body: %v", signer, err)
		}
		if err := sign.VerifyAny(signer, secrets, http.Header{}, nil, nil, 0); !errors.Is(err, sign.ErrHeaders) {
			t.Errorf("%s: without anything that could be one: %v", signer, err)
		}
		if err := verify(body); err == nil || err.Error() != "signing secret is empty" {
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
	if err := sign.VerifyAny("none", nil, nil, nil, nil, 0); err != nil {
		t.Errorf("none: %v", err)
	}
	if err := sign.VerifyAny("x", signtest.Secrets(signtest.Shortest()), nil, nil, nil, 0); err == nil {
		t.Error("an unknown signer is verified")
	}
}

func TestTimestampsAreVerified(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-time.Hour)
	for signer, header := range map[string]string{
		"standard-v1": sign.HeaderTimestamp, "standard-v1a": sign.HeaderTimestamp, "t-v1": "X-Signature", "wechat-v3-rsa": "Wechatpay-Timestamp",
	} {
		use := signtest.UseOf(t, signer)
		c := newTestClient(t, Options{Transport: answerWith(200, nil, "")})
		r := newRequest("https://shop.example/")
		r.Signer, r.Secrets = signer, signtest.Secrets(signtest.Secret(t, use, 0))
		u, err := parseURL(r.URL)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.prepare(&r, u, old)
		if err != nil {
			t.Fatal(err)
		}
		for tolerance, want := range map[time.Duration]error{0: sign.ErrTimestamp, 2 * time.Hour: nil, -1: nil} {
			if err := sign.VerifyAny(signer, r.Secrets, p.header, nil, r.Body, tolerance); !errors.Is(err, want) {
				t.Errorf("%s, an hour old, tolerance %v: %v, want %v", signer, tolerance, err, want)
			}
		}
		for _, wrong := range []string{"x", "", "t=x,v1=00", "v1=00", "t=1"} {
			p.header.Set(header, wrong)
			if err := sign.VerifyAny(signer, r.Secrets, p.header, nil, r.Body, -1); !errors.Is(err, sign.ErrHeaders) {
				t.Errorf("%s with %s: %q: %v", signer, header, wrong, err)
			}
		}
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
	v1, err := sign.SignStandard(id, time.Unix(1614265330, 0), body, [][]byte{secret})
	if err != nil || v1 != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("v1: %s, %v", v1, err)
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
	arrived, _, _ := signed(t, func(r *Request) {
		r.Signer, r.Body = `{"type":"hmac-sha256-body","header":"X-Hub-Signature-256"}`, []byte("Hello, World!")
		r.Secrets = signtest.Secrets([]byte("It's a Secret to Everybody"))
	})
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
			_, got, resp := signed(t, func(r *Request) {
				r.Signer, r.ContentType, r.Body = `{"type":"sorted-kv","alg":"`+alg+`"}`, contentType, []byte(body+end)
				r.Secrets = signtest.Secrets([]byte("192006250b4c09247ec02edce69f6a2d"))
			})
			if resp.Class != store.ClassOK || string(got) != body+added+end {
				t.Errorf("%s over %s: %s %s\n got %s\nwant %s", alg, contentType, resp.Class, resp.Error, got, body+added+end)
			}
		}
	}
}

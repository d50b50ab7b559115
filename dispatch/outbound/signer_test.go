package outbound

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestParseSigner(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"standard-v1"`:               "standard-v1",
		`{"type":"standard-v1"}`:      "standard-v1",
		`"none"`:                      "none",
		`{"type":"hmac-sha256-body"}`: "hmac-sha256-body",
		`{"type":"hmac-sha256-body","header":"X-Signature-256","prefix":"sha256=","encoding":"hex","rotation_header":"X-Signature-256-Previous","key":"bytes"}`: "hmac-sha256-body",
		`{"header":"X-Hub-Signature-256","type":"hmac-sha256-body"}`:                                   `{"type":"hmac-sha256-body","header":"X-Hub-Signature-256"}`,
		`{"type":"hmac-sha256-body","prefix":"","encoding":"base64","header":"X-Shopify-Hmac-Sha256"}`: `{"type":"hmac-sha256-body","header":"X-Shopify-Hmac-Sha256","prefix":"","encoding":"base64"}`,
		`{"type":"hmac-sha256-body","rotation_header":"","key":"written"}`:                             `{"type":"hmac-sha256-body","rotation_header":"","key":"written"}`,
		`{"type":"t-v1","header":"Stripe-Signature"}`:                                                  `{"type":"t-v1","header":"Stripe-Signature"}`,
		`{"type":"sorted-kv","alg":"hmac-sha256","exclude":["sign"],"key_suffix":"&key=","case":"upper","skip_empty":true,"put":{"in":"body","name":"sign"},"sign_type":""}`: "sorted-kv",
		`{"type":"sorted-kv","alg":"rsa2","exclude":["sign","sign_type"]}`:                                                                                                   `{"type":"sorted-kv","alg":"rsa2"}`,
		`{"put":{"in":"query"},"type":"sorted-kv","sign_type":"MD5","alg":"md5","key_suffix":"","case":"lower","skip_empty":false,"exclude":[]}`:                             `{"type":"sorted-kv","alg":"md5","exclude":[],"key_suffix":"","case":"lower","skip_empty":false,"put":{"in":"query","name":"sign"},"sign_type":"MD5"}`,
		`{"type":"sorted-kv","put":{"name":"X-Sign","in":"header"}}`:                                                                                                         `{"type":"sorted-kv","put":{"in":"header","name":"X-Sign"}}`,
		`{"type":"sorted-kv","nonce":"","time":"","time_format":"unix"}`:                                                                                                     "sorted-kv",
		`{"time_format":"unix","time":"ts","nonce":"nonce_str","type":"sorted-kv"}`:                                                                                          `{"type":"sorted-kv","nonce":"nonce_str","time":"ts"}`,
		`{"time_format":"unix_ms","time":"ts","type":"sorted-kv","exclude":["ts"]}`:                                                                                          `{"type":"sorted-kv","exclude":["ts"],"time":"ts","time_format":"unix_ms"}`,
		`{"alg":"rsa2","time_format":"datetime","time":"timestamp","sign_type":"RSA2","nonce":"n","type":"sorted-kv"}`:                                                       `{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2","nonce":"n","time":"timestamp","time_format":"datetime"}`,
		`{"type":"wechat-v3-rsa","mchid":""}`:                                                                                                                                "wechat-v3-rsa",
		`{"mchid":"1900009191","type":"wechat-v3-rsa"}`:                                                                                                                      `{"type":"wechat-v3-rsa","mchid":"1900009191"}`,
	} {
		got, wrong := ParseSigner([]byte(text))
		if wrong != nil || got != want {
			t.Errorf("%s:\n got %s %v\nwant %s", text, got, wrong, want)
		}
		if again, err := readSigner(got); err != nil || again.text() != got {
			t.Errorf("%s cannot be read again: %v", got, err)
		}
	}
	for want, texts := range map[string][]string{
		"the whole": {`standard-v1`, `"standard-v2"`, `""`, `null`, `["none"]`},
		"type":      {`{}`, `{"type":"x"}`, `{"type":1}`, `{"type":"none","type":"basic"}`},
		"a":         {`{"type":"none","a":1}`},
		"header": {
			`{"type":"standard-v1","header":"X"}`, `{"type":"hmac-sha256-body","header":"webhook-x"}`,
			`{"type":"hmac-sha256-body","header":"X A"}`, `{"type":"hmac-sha256-body","header":"Host"}`,
			`{"type":"hmac-sha256-body","header":"content-type"}`, `{"type":"hmac-sha256-body","header":""}`,
		},
		"prefix":   {`{"type":"hmac-sha256-body","prefix":"é"}`, `{"type":"t-v1","prefix":"x"}`},
		"encoding": {`{"type":"hmac-sha256-body","encoding":"base32"}`},
		"key":      {`{"type":"hmac-sha256-body","key":"text"}`},
		"rotation_header": {
			`{"type":"hmac-sha256-body","rotation_header":"x-signature-256"}`,
			`{"type":"hmac-sha256-body","rotation_header":"a b"}`,
		},
		"alg":        {`{"type":"sorted-kv","alg":"sha1"}`},
		"case":       {`{"type":"sorted-kv","alg":"rsa2","case":"lower"}`, `{"type":"sorted-kv","case":"title"}`},
		"key_suffix": {`{"type":"sorted-kv","alg":"rsa2","key_suffix":""}`},
		"exclude":    {`{"type":"sorted-kv","exclude":"sign"}`},
		"exclude[1]": {`{"type":"sorted-kv","exclude":["a",1]}`},
		"skip_empty": {`{"type":"sorted-kv","skip_empty":"yes"}`},
		"put":        {`{"type":"sorted-kv","put":"body"}`},
		"put.in":     {`{"type":"sorted-kv","put":{"in":"cookie"}}`},
		"put.name": {
			`{"type":"sorted-kv","put":{"name":"a\"b"}}`, `{"type":"sorted-kv","put":{"name":"1a"}}`,
			`{"type":"sorted-kv","put":{"in":"header","name":"webhook-x"}}`,
			`{"type":"sorted-kv","sign_type":"MD5","put":{"name":"sign_type"}}`,
		},
		"put.place": {`{"type":"sorted-kv","put":{"place":"x"}}`},
		"sign_type": {
			`{"type":"sorted-kv","sign_type":"<x>"}`,
			`{"type":"sorted-kv","sign_type":"MD5","put":{"in":"header"}}`,
		},
		"x": {`{"type":"sorted-kv","x":1}`},
		"nonce": {
			`{"type":"sorted-kv","nonce":1}`, `{"type":"sorted-kv","nonce":"a b"}`,
			`{"type":"sorted-kv","nonce":"sign"}`, `{"type":"sorted-kv","nonce":"sign_type"}`,
			`{"type":"sorted-kv","nonce":"X-Sign","put":{"in":"header","name":"X-Sign"}}`,
		},
		"time": {
			`{"type":"sorted-kv","time":"1st"}`, `{"type":"sorted-kv","time":"sig","put":{"name":"sig"}}`,
			`{"type":"sorted-kv","time":"sign_type","sign_type":"MD5"}`,
			`{"type":"sorted-kv","time":"a","nonce":"a"}`,
		},
		"time_format": {
			`{"type":"sorted-kv","time":"t","time_format":"rfc3339"}`,
			`{"type":"sorted-kv","time_format":"x"}`, `{"type":"sorted-kv","time_format":"datetime"}`,
		},
		"mchid": {
			`{"type":"wechat-v3-rsa","mchid":1900009191}`, `{"type":"wechat-v3-rsa","mchid":"19\""}`,
			`{"type":"wechat-v3-rsa","mchid":"a-b"}`,
			`{"type":"wechat-v3-rsa","mchid":"123456789012345678901234567890123"}`,
		},
		"serial_no": {`{"type":"wechat-v3-rsa","serial_no":"x"}`},
	} {
		for _, text := range texts {
			got, wrong := ParseSigner([]byte(text))
			if named := fieldsOf(t, wrong); named != want || (got == "") != (want != "") {
				t.Errorf("%s:\n named %q\nwant %q (%v)", cut(text, 80), named, want, wrong)
			}
		}
	}
}

func TestSignersAreTold(t *testing.T) {
	t.Parallel()
	want := []string{"standard-v1", "standard-v1a", "hmac-sha256-body", "t-v1", "sorted-kv", "wechat-v3-rsa", "basic", "bearer", "none"}
	if got := Signers(); !slices.Equal(got, want) {
		t.Errorf("Signers() = %q", got)
	}
	for i, info := range SignerInfos() {
		if info.Name != want[i] {
			t.Errorf("signer %d is told as %s", i, info.Name)
		}
		use, err := UseOf(info.Name)
		if err != nil || use != info.Use || info.Description == "" || use != "" && !IsUse(use) {
			t.Errorf("%s: use %q, %v; told %q", info.Name, use, err, info.Use)
		}
		// Each option's default is what leaving it out means.
		for _, o := range info.Options {
			def := string(o.Default)
			if o.Name == "exclude" {
				def = `["sign"]`
			}
			text := `{"type":"` + info.Name + `","` + o.Name + `":` + def + `}`
			if got, wrong := ParseSigner([]byte(text)); got != info.Name || o.Description == "" {
				t.Errorf("%s is %s, %v", text, got, wrong)
			}
		}
	}
	for text, want := range map[string]string{
		"": UseHMAC, `{"type":"sorted-kv","alg":"rsa2"}`: UseRSA, `{"type":"sorted-kv","alg":"md5"}`: UseText, `{"type":"t-v1","header":"X-A"}`: UseHMAC,
	} {
		if use, err := UseOf(text); use != want || err != nil {
			t.Errorf("UseOf(%s) = %q, %v", text, use, err)
		}
	}
	for _, text := range []string{"x", "{", `{"type":"x"}`, `"none"`} {
		if use, err := UseOf(text); err == nil {
			t.Errorf("UseOf(%s) = %q", text, use)
		}
	}
}

// everySigner is each signer and what of its options changes what is signed or where the signature goes.
var everySigner = []string{
	"", "standard-v1", "standard-v1a", "hmac-sha256-body", `{"type":"hmac-sha256-body","header":"X-Shopify-Hmac-Sha256","prefix":"","encoding":"base64"}`,
	`{"type":"hmac-sha256-body","rotation_header":"","key":"written"}`, "t-v1", `{"type":"t-v1","header":"Stripe-Signature","key":"written"}`,
	"sorted-kv", `{"type":"sorted-kv","alg":"md5","sign_type":"MD5"}`, `{"type":"sorted-kv","alg":"md5","key_suffix":"","case":"lower","put":{"in":"query","name":"sig"}}`,
	`{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2"}`, `{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2","exclude":["sign"],"put":{"in":"query"}}`,
	`{"type":"sorted-kv","key_suffix":"","skip_empty":false,"put":{"in":"header","name":"X-Sign"}}`,
	`{"type":"sorted-kv","alg":"md5","sign_type":"MD5","nonce":"nonce_str","time":"ts"}`,
	`{"type":"sorted-kv","alg":"rsa2","exclude":["sign","n"],"put":{"in":"query"},"sign_type":"RSA2","nonce":"n","time":"timestamp","time_format":"datetime"}`,
	`{"type":"sorted-kv","put":{"in":"header","name":"X-Sign"},"nonce":"n","time":"t","time_format":"unix_ms"}`,
	"wechat-v3-rsa", `{"type":"wechat-v3-rsa","mchid":"1900009191"}`, "basic", "bearer",
}

// TestEverySignerIsVerified: what is sent is what VerifyAny takes, with either secret of a rotation where the signer has room for two
// signatures, and with nothing but the public key; and nothing else is.
func TestEverySignerIsVerified(t *testing.T) {
	t.Parallel()
	for _, signer := range everySigner {
		use := useOf(t, signer)
		secrets := []Secret{{ID: "new", Label: "serial-1", Key: secretFor(t, use, 0)}, {ID: "old", Key: secretFor(t, use, 1)}}
		got, body, resp := signed(t, func(r *Request) {
			r.Signer, r.Secrets = signer, secrets
			r.URL += "?a=b"
		})
		if resp.Class != store.ClassOK {
			t.Errorf("%s: %s %s", signer, resp.Class, resp.Error)
			continue
		}
		verify := func(body []byte, secrets ...Secret) error {
			return VerifyAny(signer, secrets, got.Header, got.URL, body, 0)
		}
		if err := verify(body, secrets[0]); err != nil {
			t.Errorf("%s: with the new secret: %v", signer, err)
		}
		old := verify(body, secrets[1])
		if both := resp.KeyID == "new,old"; both != (old == nil) || !both && (resp.KeyID != "new" || !errors.Is(old, ErrSignature)) {
			t.Errorf("%s: signed by %q, but with the old secret: %v", signer, resp.KeyID, old)
		}
		other := []byte(`{"paid":10001,` + strings.TrimPrefix(string(body), `{"paid":10000,`))
		if err := verify(other, secrets...); (err == nil) != (use == UseBasic || signer == SignerBearer) {
			t.Errorf("%s: another body: %v", signer, err)
		}
		if err := VerifyAny(signer, secrets, http.Header{}, nil, nil, 0); !errors.Is(err, ErrHeaders) {
			t.Errorf("%s: without anything that could be one: %v", signer, err)
		}
		if err := verify(body); !errors.Is(err, errNoSecret) {
			t.Errorf("%s: with no secret: %v", signer, err)
		}
		public, err := PublicOf(use, secrets[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		if public == "" {
			continue
		}
		key, err := ParseVerifierFor(use, public)
		if err != nil {
			t.Fatalf("%s: %v", public, err)
		}
		if err := verify(body, Secret{Key: key}); err != nil {
			t.Errorf("%s: with the public key: %v", signer, err)
		}
		if again, err := PublicOf(use, key); again != public || err != nil {
			t.Errorf("the public key of a public key: %q, %v", again, err)
		}
	}
	if err := VerifyAny("none", nil, nil, nil, nil, 0); err != nil {
		t.Errorf("none: %v", err)
	}
	if err := VerifyAny("x", secretsOf(testSecret()), nil, nil, nil, 0); err == nil {
		t.Error("an unknown signer is verified")
	}
}

func TestTimestampsAreVerified(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-time.Hour)
	for signer, header := range map[string]string{
		"standard-v1": headerTimestamp, "standard-v1a": headerTimestamp, "t-v1": defaultTimestampedHeader, "wechat-v3-rsa": weChatTimestamp,
	} {
		use := useOf(t, signer)
		c := newTestClient(t, Options{Transport: answerWith(200, nil, "")})
		r := newRequest("https://shop.example/")
		r.Signer, r.Secrets = signer, secretsOf(secretFor(t, use, 0))
		u, err := parseURL(r.URL)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.prepare(&r, u, old)
		if err != nil {
			t.Fatal(err)
		}
		for tolerance, want := range map[time.Duration]error{0: ErrTimestamp, 2 * time.Hour: nil, -1: nil} {
			if err := VerifyAny(signer, r.Secrets, p.header, nil, r.Body, tolerance); !errors.Is(err, want) {
				t.Errorf("%s, an hour old, tolerance %v: %v, want %v", signer, tolerance, err, want)
			}
		}
		for _, wrong := range []string{"x", "", "t=x,v1=00", "v1=00", "t=1"} {
			p.header.Set(header, wrong)
			if err := VerifyAny(signer, r.Secrets, p.header, nil, r.Body, -1); !errors.Is(err, ErrHeaders) {
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
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	v1, err := Sign(id, time.Unix(1614265330, 0), body, [][]byte{secret})
	if err != nil || v1 != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("v1: %s, %v", v1, err)
	}
	key, err := ParseSecretFor(UseEd25519, "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
	if err != nil {
		t.Fatal(err)
	}
	// Of Svix, whose scheme v1a is.
	got, err := signV1a(id, seconds, body, secretsOf(key))
	if want := "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="; err != nil || got != want {
		t.Errorf("v1a: %s, %v", got, err)
	}
	if public, err := PublicOf(UseEd25519, key); err != nil || public != "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=" {
		t.Errorf("public key: %s, %v", public, err)
	}
	// Of GitHub's documentation.
	arrived, _, _ := signed(t, func(r *Request) {
		r.Signer, r.Body = `{"type":"hmac-sha256-body","header":"X-Hub-Signature-256"}`, []byte("Hello, World!")
		r.Secrets = secretsOf([]byte("It's a Secret to Everybody"))
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
				r.Secrets = secretsOf([]byte("192006250b4c09247ec02edce69f6a2d"))
			})
			if resp.Class != store.ClassOK || string(got) != body+added+end {
				t.Errorf("%s over %s: %s %s\n got %s\nwant %s", alg, contentType, resp.Class, resp.Error, got, body+added+end)
			}
		}
	}
}

func TestSignsBody(t *testing.T) {
	t.Parallel()
	for signer, want := range map[string]bool{
		"": false, SignerStandard: false, "none": false, SignerSortedKV: true, `{"type":"sorted-kv","alg":"md5"}`: true,
		`{"type":"sorted-kv","put":{"in":"query","name":"sign"}}`: false,
	} {
		if got := SignsBody(signer); got != want {
			t.Errorf("%s: %v", signer, got)
		}
	}
}

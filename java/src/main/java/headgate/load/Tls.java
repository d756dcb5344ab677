package headgate.load;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManagerFactory;
import org.apache.kafka.common.network.ChannelMetadataRegistry;
import org.apache.kafka.common.network.CipherInformation;
import org.apache.kafka.common.network.ClientInformation;

/** TLS of a client that trusts one certificate authority. */
final class Tls {
    /** Kafka's transport layer tells its cipher to whoever asks; nobody does here. */
    static final ChannelMetadataRegistry NOBODY_ASKS = new ChannelMetadataRegistry() {
        @Override
        public void registerCipherInformation(CipherInformation information) {}

        @Override
        public CipherInformation cipherInformation() {
            return null;
        }

        @Override
        public void registerClientInformation(ClientInformation information) {}

        @Override
        public ClientInformation clientInformation() {
            return null;
        }

        @Override
        public void close() {}
    };

    private final SSLContext context = SSLContext.getInstance("TLS");

    Tls(Path authority) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream pem = Files.newInputStream(authority)) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        context.init(null, trust.getTrustManagers(), null);
    }

    /** A blocking connection. */
    Socket socket(InetSocketAddress address) throws IOException {
        return context.getSocketFactory().createSocket(address.getAddress(), address.getPort());
    }

    /** Without the peer's name Java resumes no session: every connection is a whole handshake. */
    SSLEngine engine() {
        SSLEngine engine = context.createSSLEngine();
        engine.setUseClientMode(true);
        return engine;
    }
}

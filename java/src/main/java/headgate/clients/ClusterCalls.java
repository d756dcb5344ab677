package headgate.clients;

import static headgate.clients.Run.expect;
import static headgate.clients.Run.refused;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeUserScramCredentialsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.BrokerIdNotRegisteredException;
import org.apache.kafka.common.errors.InvalidUpdateVersionException;
import org.apache.kafka.common.errors.ResourceNotFoundException;
import org.apache.kafka.common.errors.UnsupportedByAuthenticationException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;

/** Admin calls about the cluster, and about who may do what in it. */
final class ClusterCalls {
    private ClusterCalls() {}

    static void cluster(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            expect(admin.describeCluster().nodes());
            expect(admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true).includeFencedBrokers(true))
                .authorizedOperations());
            expect(admin.describeFeatures().featureMetadata());
            expect(admin.describeMetadataQuorum().quorumInfo());
            refused(
                InvalidUpdateVersionException.class,
                admin.updateFeatures(
                    Map.of("metadata.version", new FeatureUpdate((short) 999, FeatureUpdate.UpgradeType.UPGRADE)),
                    new UpdateFeaturesOptions().validateOnly(true)).all());
            refused(BrokerIdNotRegisteredException.class, admin.unregisterBroker(99).all());
            refused(
                UnsupportedVersionException.class,
                admin.addRaftVoter(
                    99, new Uuid(1, 2), Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1))).all());
            refused(UnsupportedVersionException.class, admin.removeRaftVoter(99, new Uuid(1, 2)).all());
            quotas(run, admin);
        }
    }

    private static void quotas(Run run, Admin admin) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, run.name()));
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, run.name())));
        expect(admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        for (Double rate : new Double[] {1048576.0, null}) {
            ClientQuotaAlteration.Op change = new ClientQuotaAlteration.Op("producer_byte_rate", rate);
            expect(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(change)))).all());
            awaitQuota(run, filter, rate != null);
            expect(admin.describeClientQuotas(filter).entities());
        }
    }

    // The controller has answered before the broker has heard of it.
    private static void awaitQuota(Run run, ClientQuotaFilter filter, boolean there) throws Exception {
        try (Admin waiting = run.admin("wait")) {
            Run.await(
                "the quota", () -> expect(waiting.describeClientQuotas(filter).entities()).isEmpty() != there);
        }
    }

    static void security(Run run) throws Exception {
        try (Admin admin = run.admin()) {
            acls(run, admin);
            scram(run, admin);
            tokens(admin);
        }
    }

    private static void acls(Run run, Admin admin) throws Exception {
        AclBinding reading = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, run.name(), PatternType.PREFIXED),
            new AccessControlEntry("User:" + run.name(), "*", AclOperation.READ, AclPermissionType.ALLOW));
        AclBinding leading = new AclBinding(
            new ResourcePattern(ResourceType.GROUP, run.name(), PatternType.LITERAL),
            new AccessControlEntry("User:" + run.name(), "127.0.0.9", AclOperation.ALL, AclPermissionType.DENY));
        AclBindingFilter ours = new AclBindingFilter(
            ResourcePatternFilter.ANY,
            new AccessControlEntryFilter("User:" + run.name(), null, AclOperation.ANY, AclPermissionType.ANY));
        expect(admin.createAcls(List.of(reading, leading)).all());
        awaitAcls(run, ours, 2);
        expect(admin.describeAcls(ours).values());
        expect(admin.describeAcls(reading.toFilter()).values());
        expect(admin.deleteAcls(List.of(reading.toFilter())).all());
        awaitAcls(run, ours, 1);
        expect(admin.deleteAcls(List.of(ours)).all());
        awaitAcls(run, ours, 0);
        expect(admin.describeAcls(ours).values());
    }

    private static void awaitAcls(Run run, AclBindingFilter filter, int count) throws Exception {
        try (Admin waiting = run.admin("wait")) {
            Run.await(count + " ACLs", () -> {
                Collection<AclBinding> seen = expect(waiting.describeAcls(filter).values());
                return seen.size() == count;
            });
        }
    }

    private static void scram(Run run, Admin admin) throws Exception {
        List<String> users = List.of(run.name());
        refused(ResourceNotFoundException.class, admin.describeUserScramCredentials(users).description(run.name()));
        alter(admin, new UserScramCredentialUpsertion(
            run.name(), new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "not a secret"));
        try (Admin waiting = run.admin("wait")) {
            Run.await("the credential", () -> !expect(waiting.describeUserScramCredentials().users()).isEmpty()
                && expect(waiting.describeUserScramCredentials().users()).contains(run.name()));
        }
        expect(admin.describeUserScramCredentials(users, new DescribeUserScramCredentialsOptions()).all());
        alter(admin, new UserScramCredentialDeletion(run.name(), ScramMechanism.SCRAM_SHA_256));
        refused(
            ResourceNotFoundException.class,
            admin.alterUserScramCredentials(
                List.of(new UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_512))).all());
        try (Admin waiting = run.admin("wait")) {
            Run.await(
                "no credential", () -> !expect(waiting.describeUserScramCredentials().users()).contains(run.name()));
        }
    }

    private static void alter(Admin admin, UserScramCredentialAlteration alteration) throws Exception {
        expect(admin.alterUserScramCredentials(List.of(alteration)).all());
    }

    private static void tokens(Admin admin) throws Exception {
        // Tokens are not given on a plaintext listener: what is compared are the refusals.
        refused(UnsupportedByAuthenticationException.class, admin.createDelegationToken().delegationToken());
        refused(UnsupportedByAuthenticationException.class, admin.describeDelegationToken().delegationTokens());
        byte[] unknown = {1, 2, 3};
        refused(UnsupportedByAuthenticationException.class, admin.renewDelegationToken(unknown).expiryTimestamp());
        refused(UnsupportedByAuthenticationException.class, admin.expireDelegationToken(unknown).expiryTimestamp());
    }
}
